package transfer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"

	"colabrelay/shared/contract"
)

// Bounds of a tree that is compared with a local folder, in bytes. A larger one is downloaded
// under a numbered name, because a comparison that outlasts a call starts again.
const (
	maxSameTree  = 1 << 30
	maxSameSmall = 32 << 20 // of files that fit a batch, whose bytes are fetched
)

// isSameTree reports whether a local folder that this download did not create has exactly
// the files and folders of a remote tree. The VM learns nothing about the folder: digests
// are compared here only. It fetches nothing if names or sizes differ.
func (j *job) isSameTree(ctx context.Context, root *os.Root, name string, remote *remoteTree) (bool, error) {
	folder, err := root.OpenRoot(name)
	if err != nil {
		return false, nil // a link that leads out, or no right to read it
	}
	defer folder.Close()
	local, err := walkLocal(ctx, folder)
	if err != nil || len(local.notes) > 0 || !sameShape(local, remote) {
		return false, contextError(ctx)
	}
	var small int64
	for e := range remote.files() {
		if e.SizeBytes <= contract.MaxBatchFile {
			small += e.SizeBytes
		}
	}
	if remote.bytes > maxSameTree || small > maxSameSmall {
		return false, nil
	}
	same, err := j.sameSmallOnes(ctx, folder, remote)
	for e := range remote.files() {
		if !same || err != nil {
			return false, err
		}
		if e.SizeBytes > contract.MaxBatchFile {
			same, err = j.sameLarge(ctx, folder, e)
		}
	}
	return same, err
}

// sameSmallOnes fetches all small files, batch by batch, and compares them with local ones.
func (j *job) sameSmallOnes(ctx context.Context, folder *os.Root, remote *remoteTree) (bool, error) {
	var batch []remoteEntry
	var bytes int64
	for e := range remote.files() {
		if e.SizeBytes > contract.MaxBatchFile {
			continue
		}
		if bytes += e.SizeBytes; len(batch) == contract.MaxBatchFiles || bytes > contract.MaxBatchRead {
			if same, err := j.sameSmall(ctx, folder, batch); !same || err != nil {
				return false, err
			}
			batch, bytes = batch[:0], e.SizeBytes
		}
		batch = append(batch, e)
	}
	return j.sameSmall(ctx, folder, batch)
}

// sameShape reports whether both trees have the same folders, and files of the same sizes. A
// local link is no file that a download makes.
func sameShape(local localTree, remote *remoteTree) bool {
	if len(local.files) != remote.count || len(local.folders) != len(remote.dirs) {
		return false
	}
	sizes, folders := make(map[string]int64, len(local.files)), make(map[string]bool, len(local.folders))
	for _, e := range local.files {
		if e.link {
			return false
		}
		sizes[e.name] = e.size()
	}
	for _, folder := range local.folders {
		folders[folder] = true
	}
	for e := range remote.files() {
		if size, ok := sizes[e.name]; !ok || size != e.SizeBytes {
			return false
		}
	}
	for _, folder := range remote.folders() {
		if !folders[folder] {
			return false
		}
	}
	return true
}

// sameSmall fetches small files and compares them with local ones.
func (j *job) sameSmall(ctx context.Context, folder *os.Root, files []remoteEntry) (bool, error) {
	for len(files) > 0 {
		paths := make([]string, len(files))
		for i, e := range files {
			paths[i] = e.Path
		}
		contents, bytes, err := j.client.Contents(ctx, paths)
		if err != nil {
			return false, err
		}
		for i, c := range contents {
			j.meter.moved.Add(int64(len(bytes[i])))
			sha, err := j.localDigest(ctx, folder, files[i].name, files[i].SizeBytes)
			if err != nil || c.Error != nil || c.SizeBytes != files[i].SizeBytes || sha != fmt.Sprintf("%x", sha256.Sum256(bytes[i])) {
				return false, contextError(ctx)
			}
		}
		files = files[len(contents):]
	}
	return true, nil
}

// sameLarge compares the digest of a large file with that of a local one.
func (j *job) sameLarge(ctx context.Context, folder *os.Root, e remoteEntry) (bool, error) {
	st, err := j.client.Stat(ctx, e.Path, true, 0)
	if err != nil {
		return false, err
	}
	if st.ETag == "" || st.SizeBytes != e.SizeBytes {
		return false, nil
	}
	local, err := j.localDigest(ctx, folder, e.name, e.SizeBytes)
	if err != nil {
		return false, contextError(ctx)
	}
	remote, err := j.digestOf(ctx, e.Path, st)
	if err == errStale {
		return false, nil
	}
	return err == nil && local == remote, err
}

// contextError returns why ctx ended, or nil if it did not.
func contextError(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
