"""Where should each pending pod go?

Pure: no I/O, no clock, no logging; a Snapshot goes in, a Plan comes out.
"""
