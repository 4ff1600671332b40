package colabapi

import (
	"fmt"
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
}
