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
