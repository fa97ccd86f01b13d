"""Parameter servers: weights, optimiser steps, and the stash of versions in use."""
