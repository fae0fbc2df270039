"""What is said about the steps since the last record."""

import time
from dataclasses import dataclass, field


@dataclass
class LogWindow:
    """Sums over the good steps since it began, of all ranks together."""

    _loss: float = 0.0
    _grad_norm: float = 0.0
    _correct: float = 0.0
    _predictions: float = 0.0
    _steps: int = 0
    _timed_tokens: int = 0
    _clock: float = field(default_factory=time.perf_counter)

    def restart_clock(self) -> None:
        """Leaves what came before (compiling, validation) out of the tokens per second."""
        self._timed_tokens, self._clock = 0, time.perf_counter()

    def add(self, loss: float, correct: float, predictions: float, grad_norm: float) -> None:
        """Takes a good step."""
        self._loss += loss
        self._grad_norm += grad_norm
        self._correct += correct
        self._predictions += predictions
        self._steps += 1

    def add_time(self, num_tokens: int) -> None:
        """Takes the tokens of any step, which took time whether it was good or not."""
        self._timed_tokens += num_tokens

    def means(self) -> dict[str, float]:
        """Loss, accuracy and speed; not a number where there was no good step."""
        seconds = time.perf_counter() - self._clock
        steps = self._steps or float("nan")
        return {
            "loss": self._loss / steps,
            "masked_accuracy": self._correct / max(self._predictions, 1),
            "grad_norm": self._grad_norm / steps,
            "tokens_per_second": self._timed_tokens / seconds if seconds > 0 else 0.0,
        }
