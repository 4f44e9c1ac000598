"""The nondeterministic stack in torch operations, for any device.

| file | what it holds |
|---|---|
| `store.py` | the memory of a batch of charts |
| `weights.py` | log weights as the other files want them |
| `forward.py` | Lang's algorithm by blocks of time steps |
| `backward.py` | its gradient, by the same blocks |
| `lost_mass.py` | what underflow can have cost |
| `scan.py` | whole sequences |
| `chart.py`, `steps.py` | steps after steps, with a chart that is carried on |
| `fixed.py` | steps that can be recorded and repeated, with a chart of fixed capacity |

Nothing here looks at a number: no operation waits for the device. What the precision guard has to know is
kept on the device, too, until somebody asks.
"""
