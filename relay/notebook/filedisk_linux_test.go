package notebook

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/smalldisk"
	"colabrelay/shared/tier"
)

func TestAFullDiskLeavesTheNotebook(t *testing.T) {
	tier.Long(t)
	disk := smalldisk.Run(t, 2)
	if disk == "" {
		return
	}
	path := filepath.Join(disk, "n.ipynb")
	writeFile(t, path, withCells(t, New(), "1").Bytes())
	f, err := OpenFile(path, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	missing, err := OpenOrNew(filepath.Join(disk, "new.ipynb"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(disk, "full")
	smalldisk.Fill(t, full)
	for _, f := range []*File{f, missing} {
		if _, err := f.Edit(t.Context(), "", add("2")); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "the notebook is not changed") {
			t.Errorf("%v", err)
		}
	}
	if got := sources(t, path); !slices.Equal(got, []string{"1"}) || len(hidden(t, path)) > 0 {
		t.Errorf("%q, %q", got, hidden(t, path))
	}
	if _, err := os.Stat(missing.Path()); err == nil {
		t.Error("a part of the new notebook is left")
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	edit(t, f, add("2"))
}
