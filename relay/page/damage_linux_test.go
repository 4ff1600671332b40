package page

import (
	"fmt"
	"path/filepath"
	"testing"

	"colabrelay/shared/damage"
)

// The file of another relay only says how to reach it.
func TestADamagedControlFileHidesNoOtherPage(t *testing.T) {
	damage.Files{
		Make: func(t testing.TB, dir string) {
			for _, pid := range []string{"111", "222"} {
				content := fmt.Sprintf(`{"pid":%s,"port":1024,"secret":"s","started":"2026-11-22T10:00:00Z"}`, pid)
				if err := replaceFile(filepath.Join(dir, pid+".json"), []byte(content)); err != nil {
					t.Fatal(err)
				}
			}
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			files, err := readControlFiles(dir)
			if err != nil || files[filepath.Join(dir, "222.json")].PID != 222 {
				t.Errorf("the other page: %v, %v", files, err)
			}
			return "", ""
		},
		Damage:    []string{"111.json"},
		Worthless: []string{"111.json"},
	}.Test(t)
}
