/* Binds the loops of CSV cells. */

#include "bind.h"
#include "loops.h"

PyObject *count_ends(PyObject *self, PyObject *args)
{
    Py_buffer text;
    int64_t count;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*:row_ends", &text))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    count = count_row_ends(text.buf, text.len);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&text);
    return PyLong_FromLongLong(count);
}

PyObject *split_all(PyObject *self, PyObject *args)
{
    Py_buffer text, offsets, valid, facts, target;
    Py_ssize_t max_rows;
    int delimiter, quote;
    int64_t found = -1;
    (void)self;
    if (!PyArg_ParseTuple(
            args, "y*iinw*w*w*w*:cells", &text, &delimiter, &quote, &max_rows, &offsets,
            &valid, &facts, &target))
        return NULL;
    int64_t columns = facts.len / 16;
    struct Cells cells = {
        text.buf, text.len, (uint8_t)delimiter, (uint8_t)quote, columns, max_rows,
        offsets.buf, valid.buf, facts.buf, (int64_t *)facts.buf + columns, target.buf};
    int good = text.len <= INT32_MAX && delimiter >= 0 && delimiter < 256 && quote >= 0
        && quote < 256 && delimiter != quote && columns > 0 && max_rows >= 0
        && max_rows < INT32_MAX && offsets.len / 4 / columns > max_rows
        && valid.len / columns >= (max_rows + 7) / 8
        && (target.len - text.len) / columns >= CELL_SLACK;
    Py_BEGIN_ALLOW_THREADS
    if (good)
        found = split_cells(&cells);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&text);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&valid);
    PyBuffer_Release(&facts);
    PyBuffer_Release(&target);
    if (!good)
        return refuse("cells: there is no place for so many rows and bytes");
    return PyLong_FromLongLong(found);
}

PyObject *read_all_numbers(PyObject *self, PyObject *args)
{
    Py_buffer offsets, data, valid = {0}, target;
    PyObject *validity;
    int found = 0, is_float;
    (void)self;
    if (!PyArg_ParseTuple(
            args, "y*y*Opw*:numbers", &offsets, &data, &validity, &is_float, &target))
        return NULL;
    int64_t count = target.len / 8;
    int taken = validity == Py_None
        || PyObject_GetBuffer(validity, &valid, PyBUF_SIMPLE) == 0;
    int good = taken && are_offsets(&offsets, 4, 0, count, data.len)
        && (valid.buf == NULL || valid.len >= (count + 7) / 8);
    struct Texts cells = {offsets.buf, data.buf, valid.buf};
    Py_BEGIN_ALLOW_THREADS
    if (good)
        found = is_float ? read_decimals(&cells, count, target.buf)
                         : read_integers(&cells, count, target.buf);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    PyBuffer_Release(&target);
    if (taken && validity != Py_None)
        PyBuffer_Release(&valid);
    if (!taken)
        return NULL;
    if (!good)
        return refuse("numbers: the cells are outside the data");
    return PyBool_FromLong(found);
}
