"""What hostile bytes do to maskwright: targets, mutations, and a coverage-guided fuzzer over them.

``python -m benchmarks.fuzz`` runs the fuzzer; the tests in ``tests/hostile`` run the same targets
on a few inputs each.
"""
