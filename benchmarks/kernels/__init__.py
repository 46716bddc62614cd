"""The cost of the engine's columnar kernels, in instructions a row: ``run.py`` prints it.

Times on a shared machine vary with its load; counts of instructions are nearly the same on every
machine. `kernels` lists the kernels, on the events of `data`. `counting` has Valgrind count their
instructions, in a process that runs `counted`. `budgets` has the budget of each kernel; a test
fails if a kernel takes more than twice its budget.
"""
