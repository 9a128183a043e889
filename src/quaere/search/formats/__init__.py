"""Readers of file formats. Each is a pure function of a file's bytes.

    read_pdf(data, limit) -> FileText(title="Rivers", text="The Oss ...", parts=(Part(start=0, group="page 1"), ...))

`limit` bounds the bytes a file may unpack to and the characters its text may have. A file that cannot be read raises
`Unreadable`, one whose library is not installed `ExtraMissing`. If only parts of a file cannot be read, `problems` of
the result names them.
"""
