package colabcli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"colabrelay/relay/vm/colabcli/colabclitest"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// differences returns what the backend uses and a program does not offer.
func differences(offered map[string]colabclitest.Command) error {
	var missing []error
	for _, c := range commands {
		has, found := offered[c.name]
		if !found {
			missing = append(missing, fmt.Errorf("no command %q", c.name))
			continue
		}
		for _, o := range c.options {
			if !slices.ContainsFunc(has.Options, func(h colabclitest.Option) bool {
				return slices.Contains(h.Flags, o.flag) && h.Value == o.value
			}) {
				missing = append(missing, fmt.Errorf("colab %s has no option %s with value %t", c.name, o.flag, o.value))
			}
		}
		if c.arguments < has.Arguments[0] || c.arguments > has.Arguments[1] {
			missing = append(missing, fmt.Errorf("colab %s takes %d to %d arguments, not %d", c.name, has.Arguments[0], has.Arguments[1], c.arguments))
		}
	}
	return errors.Join(missing...)
}

func TestGooglesProgramHasEverythingThatIsUsed(t *testing.T) {
	tier.Long(t)
	wheel, found := stacks.ColabCLI(t)
	if !found {
		return
	}
	google := colabclitest.ReadWheel(t, wheel)
	if err := differences(google.Commands); err != nil {
		t.Error(err)
	}
	for name, c := range colabclitest.Table(t) {
		if got, want := asJSON(t, c), asJSON(t, google.Commands[name]); got != want {
			t.Errorf("the stand-in has colab %s as %s; Google's program: %s", name, got, want)
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
