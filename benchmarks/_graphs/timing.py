FILE="timing.json"
def measure(*a): pass
def write(*a): pass
def as_print(*a): return ""
