"""Login from a course page of Canvas or Moodle, by LTI 1.3: jupyterhub-ltiauthenticator 1.6.3.

    containers/launch hub --login lti13 --class instructors.txt

Whoever opens the tool on the course's page is in the class, with the platform's login name; so who may come is decided
there, by enrolment. `launch hub remove NAME` keeps somebody out all the same, until `launch hub add NAME`. Who teaches
here stands in the class list, as `NAME instructor`. Points go back by `course class --canvas FILE` or `--moodle FILE`,
which name learners by the same login.

Register the tool with the platform. It opens in a new window; its addresses are, on a hub that has TLS:

    target link     https://hub.example.org
    login           https://hub.example.org/hub/lti13/oauth_login
    redirect        https://hub.example.org/hub/lti13/oauth_callback
    custom field    login=$Canvas.user.loginId       in Canvas (Developer Keys, + LTI Key)
                    login=$User.username             in Moodle (External tool; LTI 1.3; share the launcher's name)

Who may edit the tool's custom fields can make the platform send any name: keep that to the platform's administrators.

Then write into login.json in the class's state folder (mode 600) what the platform shows:

    {"platform": "canvas", "client_id": ["10000000000001"]}
    {"platform": "moodle", "site": "https://moodle.example.org", "client_id": ["aBcDeFgHiJ"]}

A Canvas that is not run by Instructure, and any other platform, is described in full: "issuer", "authorize_url" and
"jwks_endpoint" in place of "platform". "username_key" names another claim than the custom field above.
"""

from class_list import read_removed
from jupyterhub.user import User
from login_file import read_login
from ltiauthenticator.lti13.auth import LTI13Authenticator

ENDPOINTS = ("issuer", "authorize_url", "jwks_endpoint")
CANVAS = (
    "https://canvas.instructure.com",
    "https://sso.canvaslms.com/api/lti/authorize_redirect",
    "https://sso.canvaslms.com/api/lti/security/jwks",
)
MOODLE = ("{site}", "{site}/mod/lti/auth.php", "{site}/mod/lti/certs.php")

login = read_login(state, ["client_id"])  # noqa: F821
removed_file = state / "removed.json"  # noqa: F821
if login.get("platform") == "canvas":
    endpoints = dict(zip(ENDPOINTS, CANVAS))
elif login.get("platform") == "moodle":
    site = read_login(state, ["site"])["site"].rstrip("/")  # noqa: F821
    endpoints = {name: address.format(site=site) for name, address in zip(ENDPOINTS, MOODLE)}
else:
    endpoints = {name: read_login(state, ENDPOINTS)[name] for name in ENDPOINTS}  # noqa: F821


class CourseLTI13Authenticator(LTI13Authenticator):
    """Lets those in whom the platform sends, but not who has been removed here."""

    def validate_username(self, username: str) -> bool:
        """Whether this name can log in."""
        return super().validate_username(username) and username not in read_removed(removed_file)

    async def refresh_user(self, user: User, handler: object = None, **_: object) -> bool:
        """Whether a session goes on."""
        return user.name not in read_removed(removed_file)


c.JupyterHub.authenticator_class = CourseLTI13Authenticator  # noqa: F821
c.LTI13Authenticator.update(endpoints)  # noqa: F821
c.LTI13Authenticator.client_id = login["client_id"]  # noqa: F821
c.LTI13Authenticator.username_key = login.get("username_key", "custom_login")  # noqa: F821
c.LTI13Authenticator.uri_scheme = "https"  # noqa: F821
c.LTI13Authenticator.tool_name = "One Model, Many GPUs"  # noqa: F821
# Names become part of folders and containers.
c.Authenticator.username_pattern = r"[a-z][a-z0-9._-]{0,31}\Z"  # noqa: F821
