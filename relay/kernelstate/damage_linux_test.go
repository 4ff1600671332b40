package kernelstate

import (
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/damage"
)

func TestADamagedVersionIsReportedStaysAndIsNeverChosen(t *testing.T) {
	damage.Files{
		Make: func(t testing.TB, dir string) {
			writeVersion(t, dir, "n", 1, "older data")
			writeVersion(t, dir, "n", 2, "newer data")
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			j := &job{o: Options{Name: "n"}, folder: filepath.Join(dir, "state", "n")}
			if pending, ok := j.readPending(savingFile); ok {
				t.Errorf("unfinished work %+v", pending)
			}
			var p Progress
			m, err := j.choose(t.Context(), &p)
			must(t, err) // the older version is always there
			must(t, j.prune(3))
			if m.Version[:6] == "000001" && !strings.Contains(strings.Join(p.Warnings, ""), "000002") {
				t.Errorf("warned %q", p.Warnings)
			}
			if list, err := List(dir); err != nil || len(list) != 1 || len(list[0].Versions) != 2 {
				t.Errorf("listed %+v, %v", list, err)
			}
			// A warning names the version, which is the folder of both files.
			return m.SHA256, strings.Join(p.Warnings, " ") + " of manifest.json or data.state"
		},
		Damage:   []string{"state/n/000002-*/manifest.json", "state/n/000002-*/data.state"},
		MaxAlloc: 12 * maxManifest, // it is read three times
	}.Test(t)
}
