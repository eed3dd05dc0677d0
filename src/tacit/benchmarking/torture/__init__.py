"""Private runs that are killed and resumed, or find a disk full, a clock moved back, a log torn: what became of them.

``python -m tacit.benchmarking.torture --kills 1000 --faults 40 --out results/ledger/torture.json``

Every trial is a small private run with a ledger and a checkpoint (`victim`), in processes that are forked from one that
has imported everything, so that a life is short and a kill may fall anywhere in it. Half of the kills are at random
times over a whole life, half at the boundaries that the guarantee rests on (`processes`). Then come faults of the
machine (`faults`). What was drawn is compared with what is charged, after every death and at the end (`judging`).

A third of the runs go on under a fixed seed, so that their weights can be compared with an uninterrupted run's; a third
under secret keys; and from a third the key is taken away after the first kill, so that they must draw again. The others
are also tried with a changed record once, and must refuse it. A run has so many steps that the ledger's mark is
written ahead of them, as in any longer run.
"""
