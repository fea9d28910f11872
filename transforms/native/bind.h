/* Declares the functions of the Python module: each checks its arguments, releases the
   interpreter lock, and calls a loop. All arrays are contiguous buffers; positions are
   int64. */

#ifndef RECORDMILL_BIND_H
#define RECORDMILL_BIND_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000 /* one binary for Python 3.11 and all later versions */
#include <Python.h>
#include <stdint.h>

/* Sets a ValueError; returns NULL. */
PyObject *refuse(const char *what);

/* Returns whether the offsets from `first` to `end`, of 4 or 8 bytes, exist, ascend, and
   end within `limit`. */
int are_offsets(
    const Py_buffer *buffer, int bytes, int64_t first, int64_t end, int64_t limit);

enum { LEFT_OUT = 0x0b }; /* the kind of bytes that are left out; at most one column */

/* bind_frames.c */
PyObject *seal_all(PyObject *self, PyObject *args);
PyObject *seal_around(PyObject *self, PyObject *args);
PyObject *find_one(PyObject *self, PyObject *args);
PyObject *find_all(PyObject *self, PyObject *args);

/* bind_files.c */
PyObject *gather_all(PyObject *self, PyObject *args);
PyObject *read_all(PyObject *self, PyObject *args);
PyObject *ask_all(PyObject *self, PyObject *args);
PyObject *copy_all(PyObject *self, PyObject *args);
PyObject *read_jpeg(PyObject *self, PyObject *object);
PyObject *interleave_all(PyObject *self, PyObject *args);

/* bind_cells.c */
PyObject *count_ends(PyObject *self, PyObject *args);
PyObject *split_all(PyObject *self, PyObject *args);
PyObject *split_lines(PyObject *self, PyObject *args);
PyObject *read_all_numbers(PyObject *self, PyObject *args);
PyObject *mark_numbers(PyObject *self, PyObject *args);

/* bind_examples.c */
PyObject *measure_all(PyObject *self, PyObject *args);
PyObject *write_all(PyObject *self, PyObject *args);

#endif
