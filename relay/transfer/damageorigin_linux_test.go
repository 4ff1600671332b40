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
			must(t, from.save(besides(root), "data"))
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			root := rootOf(t, dir)
			defer root.Close()
			j := newJob(nil, Options{})
			j.records = besides(root)
			c, err := j.claimFolder(root, "data", from, func(string) (bool, error) { return false, nil })
			must(t, err)
			defer c.unlock()
			must(t, from.save(besides(root), c.name))
			if !from.isOf(besides(root), root, "data") && c.name == "data" {
				t.Error("the folder is used although its record does not say so")
			}
			return c.name, c.name + record
		},
		Damage:    []string{record},
		Rewritten: []string{".colab-relay-*"},
	}.Test(t)
}
