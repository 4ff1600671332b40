package colabapi

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/damage"
)

func TestADamagedLoginIsReportedAndStays(t *testing.T) {
	google, err := siteOf(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	use := func(_ testing.TB, dir string) (found, said string) {
		c, err := loadCredentials(dir, google)
		return fmt.Sprint(c.clientID, " ", c.clientSecret, " ", c.refreshToken), fmt.Sprint(err)
	}
	damage.Files{
		Make: func(t testing.TB, dir string) {
			l := login{ClientID: "the client", ClientSecret: "its secret", TokenURI: "https://oauth2.googleapis.com/token", RefreshToken: "the token"}
			if err := l.save(dir); err != nil {
				t.Fatal(err)
			}
		},
		Use:    use,
		Damage: []string{loginName},
	}.Test(t)
	damage.Files{
		Make: func(t testing.TB, dir string) {
			path := filepath.Join(dir, "defaults.json")
			text := `{"type":"authorized_user","client_id":"the client","client_secret":"its secret","refresh_token":"the token"}`
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := (login{DefaultsFile: path}).save(dir); err != nil {
				t.Fatal(err)
			}
		},
		Use:    use,
		Damage: []string{"defaults.json"},
	}.Test(t)
}
