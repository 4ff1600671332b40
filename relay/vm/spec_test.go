package vm

import (
	"slices"
	"testing"
)

func TestALadderHasCPUOnlyWhereItIsNamed(t *testing.T) {
	for text, want := range map[string][]string{
		"":               {CPU},
		"  ":             {CPU},
		"cpu":            {CPU},
		"t4, l4,A100":    {"T4", "L4", "A100"},
		"A100,T4,a100":   {"A100", "T4"},
		"T4,cpu":         {"T4", CPU},
		"V5E1,V6E1,G4":   {"V5E1", "V6E1", "G4"},
		"\tH100\n, cpu ": {"H100", CPU},
	} {
		if got, err := ParseAccelerators(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
