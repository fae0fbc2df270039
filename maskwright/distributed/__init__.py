"""Training on several processes, with torch's data parallelism applied to a built model.

The variables of a launcher (torchrun) become a `world`; a model goes into `parallel`, and comes out
whole on each rank (ddp) or sharded (FSDP2, HSDP).
"""
