// Package memorydir makes temporary folders of tests in memory. On a disk that others load,
// thousands of small files are slow, and a file that is synced may take a second.
//
// It must not be linked into either program.
package memorydir

import (
	"cmp"
	"os"
	"testing"
)

// Parent is the environment variable that names the folder in which New makes others. A test
// sets it for a program that it lets crash, and which then deletes nothing.
const Parent = "TEST_MEMORY_FOLDER"

// New returns a temporary folder in memory, or one like t.TempDir's if the system has no file
// system in memory. It is deleted at the end of the test.
func New(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(cmp.Or(os.Getenv(Parent), "/dev/shm"), "colab-relay-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
