"""The campaign of benchmarks/faults.py, one module for each kind of fault."""
