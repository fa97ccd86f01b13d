"""The entry point of a sabotaged function on Lambda's stand-in: the real one, with the sabotaged handler in it."""

from functools import cache

import dorylus.functions.handler as handlers
from dorylus.functions import aws_lambda
from functions_bench.inside import SabotagedHandler

handlers.of_this_process = cache(SabotagedHandler)
handler = aws_lambda.handler
