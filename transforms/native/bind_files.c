/* Binds the loops over files, their bytes and pixels. */

#include "bind.h"
#include "loops.h"

#include <stdlib.h>
#include <string.h>

PyObject *gather_all(PyObject *self, PyObject *args)
{
    Py_buffer offsets, starts, lengths, target;
    int descriptor;
    (void)self;
    if (!PyArg_ParseTuple(
            args, "iy*y*y*w*:gather", &descriptor, &offsets, &starts, &lengths, &target))
        return NULL;
    int64_t count = offsets.len / 8, found = -1;
    const int64_t *from = offsets.buf, *to = starts.buf, *size = lengths.buf;
    int good = starts.len == offsets.len && lengths.len == offsets.len;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t each = 0; good && each < count; each++)
        good = from[each] >= 0 && to[each] >= 0 && size[each] >= 0
            && size[each] <= target.len && to[each] <= target.len - size[each];
    if (good)
        found = gather_parts(descriptor, from, to, size, count, target.buf);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&lengths);
    PyBuffer_Release(&target);
    if (!good)
        return refuse("gather: a part is outside the target");
    return PyLong_FromLongLong(found);
}

/* Creates a list of bytes objects for the files' contents. Returns NULL with an exception
   on failure. */
static PyObject *room_for(
    PyObject *paths, const int64_t *sizes, int64_t count, const char **names,
    uint8_t **targets)
{
    PyObject *files = PyList_New((Py_ssize_t)count);
    for (int64_t each = 0; files != NULL && each < count; each++) {
        PyObject *file = NULL, *path = PyTuple_GetItem(paths, (Py_ssize_t)each);
        names[each] = path == NULL ? NULL : PyBytes_AsString(path);
        if (names[each] != NULL)
            file = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)sizes[each]);
        if (file == NULL || PyList_SetItem(files, (Py_ssize_t)each, file) < 0) {
            Py_DECREF(files);
            return NULL;
        }
        targets[each] = (uint8_t *)PyBytes_AsString(file);
    }
    return files;
}

PyObject *read_all(PyObject *self, PyObject *args)
{
    PyObject *paths, *files = NULL, *found = NULL;
    Py_buffer sizes, modified;
    (void)self;
    if (!PyArg_ParseTuple(args, "Oy*y*:files", &paths, &sizes, &modified))
        return NULL;
    int64_t count = sizes.len / 8;
    int good = PyTuple_Check(paths) && PyTuple_Size(paths) == count
        && modified.len == sizes.len;
    for (int64_t each = 0; good && each < count; each++)
        good = ((const int64_t *)sizes.buf)[each] >= 0;
    const char **names = calloc((size_t)count + 1, sizeof *names);
    uint8_t **targets = calloc((size_t)count + 1, sizeof *targets);
    if (!good)
        refuse("files: each needs a path, a size and a time");
    else if (names == NULL || targets == NULL)
        PyErr_NoMemory();
    else
        files = room_for(paths, sizes.buf, count, names, targets);
    if (files != NULL) {
        int64_t done;
        Py_BEGIN_ALLOW_THREADS
        done = read_files(names, sizes.buf, modified.buf, count, targets);
        Py_END_ALLOW_THREADS
        found = PyList_GetSlice(files, 0, (Py_ssize_t)done);
        Py_DECREF(files);
    }
    free(names);
    free(targets);
    PyBuffer_Release(&sizes);
    PyBuffer_Release(&modified);
    return found;
}

PyObject *ask_all(PyObject *self, PyObject *args)
{
    Py_buffer paths, sizes, modified, changed;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*w*w*w*:status", &paths, &sizes, &modified, &changed))
        return NULL;
    const char *names = paths.buf;
    int64_t count = sizes.len / 8, ends = 0;
    int good = modified.len == sizes.len && changed.len == sizes.len;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t at = 0; at < paths.len; at++)
        ends += names[at] == 0;
    good = good && ends == count && (count == 0 || names[paths.len - 1] == 0);
    if (good)
        ask_files(names, count, sizes.buf, modified.buf, changed.buf);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&paths);
    PyBuffer_Release(&sizes);
    PyBuffer_Release(&modified);
    PyBuffer_Release(&changed);
    if (!good)
        return refuse("status: each path needs a zero byte behind it, and a place");
    Py_RETURN_NONE;
}

/* Copies the bytes after the first `skip` bytes of the pieces. Returns their number. */
static int64_t copy_behind(
    const Py_buffer *pieces, Py_ssize_t count, int64_t skip, uint8_t *target, int64_t room)
{
    int64_t done = 0;
    for (Py_ssize_t each = 0; each < count && done < room; each++) {
        int64_t size = pieces[each].len;
        if (skip >= size) {
            skip -= size;
            continue;
        }
        int64_t some = size - skip < room - done ? size - skip : room - done;
        memcpy(target + done, (const uint8_t *)pieces[each].buf + skip, (size_t)some);
        done += some;
        skip = 0;
    }
    return done;
}

PyObject *copy_all(PyObject *self, PyObject *args)
{
    PyObject *list;
    Py_buffer target;
    Py_ssize_t skip, held = 0;
    int64_t done = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "Onw*:copy", &list, &skip, &target))
        return NULL;
    Py_ssize_t count = PyList_Size(list);
    Py_buffer *pieces = calloc((size_t)(count > 0 ? count : 0) + 1, sizeof *pieces);
    if (pieces == NULL)
        PyErr_NoMemory();
    else if (count >= 0 && skip < 0)
        refuse("copy: cannot skip less than no bytes");
    else
        while (held < count
               && PyObject_GetBuffer(
                      PyList_GetItem(list, held), pieces + held, PyBUF_SIMPLE)
                   == 0)
            held++;
    int good = !PyErr_Occurred();
    Py_BEGIN_ALLOW_THREADS
    if (good)
        done = copy_behind(pieces, count, skip, target.buf, target.len);
    Py_END_ALLOW_THREADS
    while (held > 0)
        PyBuffer_Release(pieces + --held);
    free(pieces);
    PyBuffer_Release(&target);
    return good ? PyLong_FromLongLong(done) : NULL;
}

PyObject *read_jpeg(PyObject *self, PyObject *object)
{
    Py_buffer data;
    int32_t found[3];
    (void)self;
    if (PyObject_GetBuffer(object, &data, PyBUF_SIMPLE) < 0)
        return NULL;
    int good = read_whole_jpeg(data.buf, data.len, found);
    PyBuffer_Release(&data);
    if (!good)
        Py_RETURN_NONE;
    return Py_BuildValue("(iii)", (int)found[0], (int)found[1], (int)found[2]);
}

PyObject *interleave_all(PyObject *self, PyObject *args)
{
    Py_buffer rows, images;
    Py_ssize_t before, count;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*nnw*:interleave", &rows, &before, &count, &images))
        return NULL;
    int64_t row_bytes = count > 0 ? rows.len / count : 0;
    int64_t pixels = count > 0 ? images.len / count / 3 : 0;
    int good = before >= 0 && count >= 0 && row_bytes * count == rows.len
        && 3 * pixels * count == images.len
        && (count == 0 || (before <= row_bytes && 3 * pixels <= row_bytes - before));
    Py_BEGIN_ALLOW_THREADS
    if (good && pixels > 0)
        interleave_rows(
            (const uint8_t *)rows.buf + before, row_bytes, count, pixels, images.buf);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&rows);
    PyBuffer_Release(&images);
    if (!good)
        return refuse("interleave: the rows do not hold the planes of the images");
    Py_RETURN_NONE;
}
