package colabcli

import (
	"slices"
	"testing"

	"colabrelay/relay/vm/colabcli/colabclitest"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func TestGooglesProgramHasEverythingThatIsUsed(t *testing.T) {
	tier.Long(t)
	wheel, found := stacks.ColabCLI(t)
	if !found {
		return
	}
	offered := colabclitest.ReadWheel(t, wheel)
	for _, c := range commands {
		has, found := offered[c.name]
		if !found {
			t.Errorf("no command %q", c.name)
			continue
		}
		for flag, value := range c.options {
			if !slices.ContainsFunc(has.Options, func(h colabclitest.Option) bool {
				return slices.Contains(h.Flags, flag) && h.Value == value
			}) {
				t.Errorf("colab %s has no option %s with value %t", c.name, flag, value)
			}
		}
		if c.arguments < has.Arguments[0] || c.arguments > has.Arguments[1] {
			t.Errorf("colab %s takes %d to %d arguments, not %d", c.name, has.Arguments[0], has.Arguments[1], c.arguments)
		}
	}
}
