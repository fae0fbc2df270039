"""What would reach the Hugging Face hub."""

from types import SimpleNamespace
from typing import Any

from huggingface_hub import CommitOperationDelete


class Hub:
    """What reaches the hub, in place of the client's `HfApi`.

    Attributes:
        repositories: True for each private one.
        stored: files that every repository has from the beginning.
        removed: files that a commit removed.
        commits: (repository, branch, message, files) of each commit.
        refusal: raised at the commit.
    """

    endpoint = "https://hub.test"

    def __init__(self) -> None:
        self.repositories: dict[str, bool] = {}
        self.branches, self.stored, self.removed = list[str](), list[str](), list[str]()
        self.commits: list[tuple[str, str | None, str, dict[str, bytes]]] = []
        self.tokens: list[str] = []
        self.refusal: Exception | None = None

    def open(self, token: str, **library: str) -> "Hub":
        self.tokens.append(token)
        return self

    def create_repo(self, repo: str, private: bool | None, exist_ok: bool) -> None:
        self.repositories.setdefault(repo, bool(private))

    def model_info(self, repo: str) -> SimpleNamespace:
        return SimpleNamespace(private=self.repositories[repo])

    def create_branch(self, repo: str, branch: str, exist_ok: bool) -> None:
        self.branches.append(branch)

    def list_repo_files(self, repo: str, revision: str | None) -> list[str]:
        return self.stored

    def create_commit(
        self, repo: str, operations: list[Any], commit_message: str, revision: str | None
    ) -> None:
        if self.refusal is not None:
            raise self.refusal
        files: dict[str, bytes] = {}
        for one in operations:
            if isinstance(one, CommitOperationDelete):
                self.removed.append(one.path_in_repo)
                continue
            with one.as_file() as content:
                files[one.path_in_repo] = content.read()
        self.commits.append((repo, revision, commit_message, files))
