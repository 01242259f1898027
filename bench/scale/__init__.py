"""How a micro-batch's duration grows with partitions and tasks, and what of it is the driver's."""
