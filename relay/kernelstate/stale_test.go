package kernelstate

import (
	"errors"
	"strings"
	"testing"

	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func TestSaveStartsAgainAfterOtherCodeRan(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	v, dir := borrowVM(t, stacks.Old(t)), t.TempDir()
	v.run("import os\nx, data = 'old', os.urandom(48 << 20)")
	ctx, o := dying(t, 1<<20)
	if _, err := Save(ctx, v.client, dir, o); !errors.Is(err, errDied) {
		t.Fatalf("%v", err)
	}
	v.run("x, data = 'new', None")
	s := v.save(dir, "n")
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "other code ran") || s.Manifest.Bytes > 1<<20 {
		t.Errorf("%d bytes, warned %q", s.Manifest.Bytes, s.Warnings)
	}
	v.restore(dir, "n")
	if got := v.run("print(x)"); got != "new\n" {
		t.Errorf("saved %s", got)
	}
	wantNothingLeft(t, v, dir, "n")
}
