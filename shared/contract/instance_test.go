package contract

import (
	"strings"
	"testing"
)

func TestInstanceIsReadOnlyAsItIsWritten(t *testing.T) {
	longest := strings.Repeat("a", MaxInstancePart)
	for text, good := range map[string]bool{
		"8f14e45f-ceea-467f-a9d8-1b2c3d4e5f60/PQ4XKZ5V7A3LJ6M2": true,
		"a/b":                      true,
		"A.z_0-9/.":                true,
		longest + "/" + longest:    true,
		longest + "a/" + longest:   false,
		longest + "/a" + longest:   false,
		"":                         false,
		"a/":                       false,
		"a/b/c":                    false,
		"a/b, c/d":                 false,
		"a/b\n":                    false,
		"a/\x1b[31m":               false,
		"ä/b":                      false,
		strings.Repeat("a/b", 1e5): false,
	} {
		got, err := ParseInstance(text)
		switch {
		case good && (err != nil || got.String() != text || got.IsZero()):
			t.Errorf("%q: %+v, %v", text, got, err)
		case !good && (err == nil || !got.IsZero()):
			t.Errorf("%.40q is accepted as %+v", text, got)
		case err != nil && len(err.Error()) > 100:
			t.Errorf("the error repeats the text: %v", err)
		}
	}
}
