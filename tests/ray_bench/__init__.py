"""Ray on real separate nodes, each in a network namespace of this machine: to run on, and to inject faults into."""
