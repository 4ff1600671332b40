package hostilevm

import (
	"bytes"
	"image/png"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The relay must meet what is announced, not a broken picture.
func TestAnEmptyPNGIsWhole(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {1000, 700}} {
		m, err := png.Decode(bytes.NewReader(emptyPNG(size[0], size[1])))
		if err != nil || m.Bounds().Dx() != size[0] || m.Bounds().Dy() != size[1] {
			t.Errorf("%v: %v", size, err)
		}
	}
}

func TestEachCaseIsFoundByItsName(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Cases {
		if c.Name == "" || c.About == "" || seen[c.Name] {
			t.Errorf("case %q: want a unique name and a description", c.Name)
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
