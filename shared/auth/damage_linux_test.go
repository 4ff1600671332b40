package auth

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/damage"
)

func TestADamagedSecretFileIsReportedAndStays(t *testing.T) {
	secret := GenerateSecret()
	damage.Files{
		Make: func(t testing.TB, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(secret.Reveal()+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		Use: func(_ testing.TB, dir string) (found, said string) {
			read, err := ReadSecretFile(filepath.Join(dir, "secret"))
			return read.Reveal(), fmt.Sprint(err)
		},
		Damage: []string{"secret"},
		Harmless: func(_, _, found string) bool { // any text of that length may be a secret
			return len(found) >= MinSecretBytes && !strings.Contains(found, "\x00")
		},
	}.Test(t)
}
