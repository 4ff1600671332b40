package files

import "colabrelay/shared/contract"

// Stat is the file or folder at path, links followed, without its digest.
func (r *Roots) Stat(path string) (contract.FileStat, error) { return contract.FileStat{}, nil }

// Read fills buf from offset on and returns how many bytes that were: fewer than
// len(buf) only at the end of the file. A non-empty etag must be the file's, and
// the file must be the same before and after, else ErrChanged.
func (r *Roots) Read(path, etag string, offset int64, buf []byte) (int, error) { return 0, nil }
