package fakevm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"colabrelay/shared/contract"
)

// Root is the folder that relative paths start from.
const Root = "/content"

// modified is the time of every file. An etag therefore depends on the content only.
var modified = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// Put creates or changes a file. A folder exists if a file is in it.
func (v *VM) Put(name string, content []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.files[at(name)] = slices.Clone(content)
}

// File returns the content of a file.
func (v *VM) File(name string) ([]byte, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	content, ok := v.files[at(name)]
	return slices.Clone(content), ok
}

// Digest returns the SHA-256 of content in hexadecimal, as in the contract.
func Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func at(name string) string {
	if !path.IsAbs(name) {
		name = path.Join(Root, name)
	}
	return path.Clean(contract.EscapeName(contract.UnescapeName(name)))
}

// findLocked returns a file or folder.
func (v *VM) findLocked(name string) (contract.FileStat, error) {
	name = at(name)
	st := contract.FileStat{File: contract.File{Name: path.Base(name), Path: name, Modified: modified}}
	if content, ok := v.files[name]; ok {
		st.SizeBytes, st.ETag = int64(len(content)), Digest(content)[:16]
		return st, nil
	}
	for one := range v.files {
		st.IsDir = st.IsDir || strings.HasPrefix(one, name+"/")
	}
	if !st.IsDir && name != Root {
		return st, &contract.Error{Code: contract.CodeNotFound, Message: fmt.Sprintf("%q does not exist", name)}
	}
	st.IsDir = true
	return st, nil
}

func (v *VM) stat(q url.Values) (contract.FileStat, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	st, err := v.findLocked(q.Get("path"))
	if err == nil && !st.IsDir && q.Get("digest") == "1" {
		st.SHA256 = Digest(v.files[st.Path])
	}
	return st, err
}

func (v *VM) list(q url.Values) (contract.Files, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	dir, err := v.findLocked(q.Get("path"))
	if err != nil {
		return contract.Files{}, err
	}
	if !dir.IsDir {
		return contract.Files{}, &contract.Error{Code: contract.CodeBadRequest, Message: "not a folder"}
	}
	names := map[string]bool{}
	for one := range v.files {
		if rest, ok := strings.CutPrefix(one, dir.Path+"/"); ok {
			first, _, _ := strings.Cut(rest, "/")
			names[first] = true
		}
	}
	got := contract.Files{Path: dir.Path, Files: []contract.File{}}
	for name := range names {
		one, err := v.findLocked(path.Join(dir.Path, name))
		if err != nil {
			return got, err
		}
		if one.IsDir {
			got.DirCount++
		} else {
			got.FileCount++
		}
		if name > q.Get("after") {
			got.Files = append(got.Files, one.File)
		}
	}
	slices.SortFunc(got.Files, func(a, b contract.File) int { return strings.Compare(a.Name, b.Name) })
	return got, nil
}

func (v *VM) content(q url.Values) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	st, err := v.findLocked(q.Get("path"))
	if err != nil {
		return nil, err
	}
	if st.ETag != q.Get("etag") {
		return nil, &contract.Error{Code: contract.CodeChanged, Message: "the file changed"}
	}
	offset, err1 := strconv.ParseInt(q.Get("offset"), 10, 64)
	length, err2 := strconv.ParseInt(q.Get("length"), 10, 64)
	if err1 != nil || err2 != nil || length > contract.MaxFilePart {
		return nil, &contract.Error{Code: contract.CodeBadRequest, Message: "offset or length"}
	}
	content := v.files[st.Path]
	from := min(offset, st.SizeBytes)
	return slices.Clone(content[from:min(from+length, st.SizeBytes)]), nil
}
