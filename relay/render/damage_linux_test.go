package render

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/damage"
	"colabrelay/shared/tier"
)

// The text of a run can be fetched again, so that damage costs only that.
func TestADamagedDescriptionOfSavedTextCostsAnotherFetch(t *testing.T) {
	tier.Long(t)
	all := lines(40)
	save := func(t testing.TB, dir string, until int) View {
		c := New(Options{Dir: dir, Instance: "vm", Limit: 20_000})
		for c.Next() < int64(until) {
			c.Skip()
			c.Add(all[c.Next()])
		}
		return c.View(t.Context(), noBlobs)
	}
	damage.Files{
		Make: func(t testing.TB, dir string) { save(t, dir, 30) },
		Use: func(t testing.TB, dir string) (found, said string) {
			v := save(t, dir, 40)
			if !strings.Contains(v.Stdout, "0000039") {
				t.Errorf("the newest line is not shown: %.200q", v.Stdout)
			}
			text, _ := os.ReadFile(filepath.Join(dir, "stdout.txt"))
			return string(text), ""
		},
		Damage:    []string{savedFile},
		Rewritten: []string{"*"},
		Worthless: []string{savedFile},
		Cuts:      50,
	}.Test(t)
}
