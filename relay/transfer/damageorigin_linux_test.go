package transfer

import (
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/damage"
)

// A folder whose record is damaged counts as a stranger's: the download takes another name.
func TestADownloadWritesNothingIntoAFolderWhoseRecordIsDamaged(t *testing.T) {
	from := newOrigin("gpu", "data")
	record := hiddenName("data", originSuffix)
	damage.Files{
		Make: func(t testing.TB, dir string) {
			root := rootOf(t, dir)
			defer root.Close()
			must(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
			must(t, os.WriteFile(filepath.Join(dir, "data", "x"), []byte("kept"), 0o600))
			must(t, from.save(root, "data"))
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			root := rootOf(t, dir)
			defer root.Close()
			at, unlock, err := newJob(nil, Options{}).claimFolder(root, "data", from)
			must(t, err)
			defer unlock()
			must(t, from.save(root, at))
			if !from.isOf(root, "data") && at == "data" {
				t.Error("the folder is used although its record does not say so")
			}
			return at, at + record
		},
		Damage:    []string{record},
		Rewritten: []string{".colab-relay-*"},
	}.Test(t)
}
