"""The report card as one page: values in, HTML out. Nothing here measures or reads the clock."""
