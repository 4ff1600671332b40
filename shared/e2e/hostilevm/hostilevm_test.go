package hostilevm

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEachCaseIsFoundByItsName(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Cases {
		if c.Name == "" || c.About == "" || seen[c.Name] {
			t.Errorf("case %q: want a name of its own and what it does", c.Name)
		}
		seen[c.Name] = true
		if _, err := New(c.Name); err != nil {
			t.Errorf("case %q: %v", c.Name, err)
		}
	}
	if _, err := Find("no such case"); err == nil {
		t.Error("a case was found that is none")
	}
}
