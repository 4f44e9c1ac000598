# mypy: allow-untyped-defs, allow-untyped-calls
"""Compiled products of small vectors and matrices."""

from ndstack.ops.runtime.compiling import loop

_compiled = loop(nogil=True, fastmath={"contract"})
_summing = loop(nogil=True, fastmath={"reassoc", "contract", "nsz"})


@_summing
def dot(a, b):
    """sum_j a[j] b[j]; b may be longer."""
    total = a.dtype.type(0)
    for j in range(a.size):
        total += a[j] * b[j]
    return total


@_compiled
def copy(values, result):
    """result = values, which may be longer. Compiled, `result[:] = values` takes six times as long."""
    for j in range(result.size):
        result[j] = values[j]


@_compiled
def fill(values, first, last, value):
    """values[first : last] = value; LLVM makes one instruction of it, of a slice it does not."""
    for j in range(first, last):
        values[j] = value


@_compiled
def add_where_present(value, present, values, first, last):
    """values[first : last] += value; 0 where `present` is 0."""
    for j in range(first, last):
        values[j] = values[j] + value if present[j] != 0 else 0


@_compiled
def add_scaled(factor, values, result):
    """result += factor values; `values` may be longer."""
    for j in range(result.size):
        result[j] += factor * values[j]


@_compiled
def multiply_pattern(values, first, length, pattern, out, place):
    """out[place + j] = values[first + j] pattern[j % pattern.size], for j < length."""
    size = pattern.size
    for chunk in range(0, length, size):
        count = size if length - chunk > size else length - chunk
        for j in range(count):
            out[place + chunk + j] = values[first + chunk + j] * pattern[j]


@_compiled
def add_to_pattern(values, first, length, pattern):
    """pattern[j % pattern.size] += values[first + j], for j < length."""
    size = pattern.size
    for chunk in range(0, length, size):
        count = size if length - chunk > size else length - chunk
        for j in range(count):
            pattern[j] += values[first + chunk + j]


@_compiled
def add_product(vector, matrix, result):
    """result += vector matrix, of shapes [K], [K, J], [J]; four rows at a time."""
    whole = vector.size - vector.size % 4
    for k in range(0, whole, 4):
        u, v, w, x = vector[k], vector[k + 1], vector[k + 2], vector[k + 3]
        a, b, c, d = matrix[k], matrix[k + 1], matrix[k + 2], matrix[k + 3]
        for j in range(result.size):
            result[j] += u * a[j] + v * b[j] + w * c[j] + x * d[j]
    for k in range(whole, vector.size):
        add_scaled(vector[k], matrix[k], result)


@_summing
def add_dots(matrix, vector, result):
    """result += matrix vector, of shapes [K, J], [J], [K]; four rows at a time."""
    whole, none = result.size - result.size % 4, result.dtype.type(0)
    for k in range(0, whole, 4):
        a, b, c, d = matrix[k], matrix[k + 1], matrix[k + 2], matrix[k + 3]
        u = v = w = x = none
        for j in range(vector.size):
            u += a[j] * vector[j]
            v += b[j] * vector[j]
            w += c[j] * vector[j]
            x += d[j] * vector[j]
        result[k] += u
        result[k + 1] += v
        result[k + 2] += w
        result[k + 3] += x
    for k in range(whole, result.size):
        result[k] += dot(vector, matrix[k])
