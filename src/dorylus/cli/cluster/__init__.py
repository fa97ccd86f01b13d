"""What ``dorylus doctor --cluster ray`` does: a survey of the nodes is taken, and then judged.

``survey.py`` is what is known of a cluster, as plain data; ``ray.py`` takes a survey, with a ``probe.py`` on every
node; ``taking.py`` has that done in a child process, within deadlines; ``judging.py`` makes the report's lines of it.
"""
