"""The last import of the process that `tests.forked` forks.

The garbage collector of a fork would else look through all that is imported, and so copy it.
"""

import gc

gc.freeze()
