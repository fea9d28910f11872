/* The Python module `_loops`. numpy_loops.py documents each function; the functions are
   in bind_*.c, and the loops that they call in the other files. */

#include "bind.h"
#include "loops.h"

PyObject *refuse(const char *what)
{
    PyErr_SetString(PyExc_ValueError, what);
    return NULL;
}

static PyMethodDef methods[] = {
    {"measure", measure_all, METH_VARARGS, "Measures each row's Features message."},
    {"write", write_all, METH_VARARGS, "Writes each row's Example."},
    {"count_row_ends", count_ends, METH_VARARGS, "Counts bytes that may end a row."},
    {"split_cells", split_all, METH_VARARGS, "Splits the rows of a CSV text."},
    {"split_objects", split_lines, METH_VARARGS, "Splits lines that are JSON objects."},
    {"parse_numbers", read_all_numbers, METH_VARARGS, "Reads cells that hold numbers."},
    {"mark_long_numbers", mark_numbers, METH_VARARGS, "Marks cells with many digits."},
    {"seal", seal_all, METH_VARARGS, "Seals frames."},
    {"seal_around", seal_around, METH_VARARGS, "Seals frames that lack a cell each."},
    {"read_jpeg_size", read_jpeg, METH_O, "Finds the size of a JPEG that is surely whole."},
    {"first_damaged_frame", find_one, METH_VARARGS, "Finds the first damaged frame."},
    {"find_frames", find_all, METH_VARARGS, "Finds frames that follow each other."},
    {"read_files", read_all, METH_VARARGS, "Reads whole files."},
    {"copy", copy_all, METH_VARARGS, "Copies pieces to where they stand together."},
    {"interleave", interleave_all, METH_VARARGS, "Lays planes side by side."},
    {"read_status", ask_all, METH_VARARGS, "Tells sizes and times of files."},
    {"gather", gather_all, METH_VARARGS, "Reads parts of a file."},
    {NULL, NULL, 0, NULL},
};

static int prepare(PyObject *module)
{
    PyObject *any_time = PyLong_FromLongLong(ANY_TIME);
    int added = any_time == NULL ? -1 : PyModule_AddObjectRef(module, "ANY_TIME", any_time);
    Py_XDECREF(any_time);
    if (added < 0 || PyModule_AddIntConstant(module, "LEFT_OUT", LEFT_OUT) < 0
        || PyModule_AddIntConstant(module, "CELL_SLACK", CELL_SLACK) < 0
        || PyModule_AddIntConstant(module, "NO_QUOTE", NO_QUOTE) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "CRC32C", crc32c_choose());
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, prepare}, {0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_loops", "Loops over the bytes of batches.", 0, methods,
    slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__loops(void)
{
    return PyModuleDef_Init(&definition);
}
