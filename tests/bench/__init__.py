"""The parts of the report card that are values in, values out. Measuring itself is not tested: it is looked at."""
