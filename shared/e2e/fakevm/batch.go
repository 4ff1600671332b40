package fakevm

import (
	"bytes"
	"encoding/json"
	"errors"
	"path"
	"strings"

	"colabrelay/shared/contract"
)

func badRequest(err error) error {
	return &contract.Error{Code: contract.CodeBadRequest, Message: err.Error()}
}

// compare does not consider numbered names: a file with different content is absent.
func (v *VM) compare(body []byte) (contract.Comparison, error) {
	var m contract.Manifest
	if err := json.Unmarshal(body, &m); err != nil {
		return contract.Comparison{}, badRequest(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var out contract.Comparison
	for _, f := range m.Files {
		one := contract.Compared{State: contract.StateAbsent}
		name := at(path.Join(m.Path, f.Name))
		switch content, ok := v.files[name]; {
		case ok && Digest(content) == f.SHA256:
			one = contract.Compared{State: contract.StateSame, Path: name, ETag: Digest(content)[:16]}
		case ok && f.Replaces != "" && Digest(content) != f.Replaces:
			one = contract.Compared{State: contract.StateTaken}
		}
		out.Files = append(out.Files, one)
	}
	return out, nil
}

func (v *VM) batch(body []byte) (contract.BatchAnswer, error) {
	var m contract.Manifest
	files, index, err := contract.SplitBatch(body)
	if err == nil {
		err = json.Unmarshal(index, &m)
	}
	if err != nil {
		return contract.BatchAnswer{}, badRequest(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var out contract.BatchAnswer
	for _, f := range m.Files {
		content := files[:f.SizeBytes]
		files = files[f.SizeBytes:]
		start := contract.UploadStart{Path: path.Join(m.Path, f.Name), SizeBytes: f.SizeBytes, Overwrite: m.Overwrite, Replaces: f.Replaces}
		switch {
		case strings.HasSuffix(f.Name, "/"), f.Executable && f.SHA256 == "": // a folder exists if a file is in it
			out.Files = append(out.Files, contract.BatchedFile{Path: at(start.Path)})
		case Digest(content) != f.SHA256:
			out.Files = append(out.Files, contract.BatchedFile{Error: &contract.Error{Code: contract.CodeChanged, Message: "the SHA-256 differs"}})
		default:
			name, err := v.placeLocked(start, f.SHA256)
			var refused *contract.Error
			if errors.As(err, &refused) {
				out.Files = append(out.Files, contract.BatchedFile{Error: refused})
				continue
			}
			v.files[name] = bytes.Clone(content)
			out.Files = append(out.Files, contract.BatchedFile{Path: name, ETag: f.SHA256[:16]})
		}
	}
	return out, nil
}

func (v *VM) contents(body []byte) ([]byte, error) {
	var asked contract.ReadBatch
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, badRequest(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []byte
	var index contract.Contents
	for _, name := range asked.Paths {
		st, err := v.findLocked(name)
		var refused *contract.Error
		switch {
		case errors.As(err, &refused):
			index.Files = append(index.Files, contract.Content{Error: refused})
		case st.SizeBytes > contract.MaxBatchFile:
			index.Files = append(index.Files, contract.Content{Error: &contract.Error{Code: contract.CodeTooLarge, Message: "too large"}})
		default:
			all = append(all, v.files[st.Path]...)
			index.Files = append(index.Files, contract.Content{SizeBytes: st.SizeBytes, ETag: st.ETag, Modified: st.Modified})
		}
	}
	return contract.AppendIndex(all, index)
}
