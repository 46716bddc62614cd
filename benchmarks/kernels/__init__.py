"""What the engine's columnar kernels cost, in instructions a row: ``run.py`` prints them.

Time on a machine that is shared says little about code, and instructions say nearly the same
wherever they are counted. `kernels` lists what is counted, on the events of `data`; `counting` has
Valgrind count it, in a process whose side of that is `counted`; `budgets` is what each kernel may
take, and a test holds it to twice that.
"""
