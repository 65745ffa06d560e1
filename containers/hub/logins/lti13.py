"""Login from a course page of Canvas or Moodle, by LTI 1.3: jupyterhub-ltiauthenticator 1.6.3.

    containers/launch hub --login lti13 --class instructors.txt

Everyone who opens the tool on the course's page is in the class, with the platform's login name: enrolment there
decides who has access. `launch hub remove NAME` excludes a user until `launch hub add NAME`. The class list names the
instructors, as `NAME instructor`. `course class --canvas FILE` and `--moodle FILE` write points for the platform,
under the same login names.

Register the tool with the platform. It opens in a new window; its addresses are, on a hub that has TLS:

    target link     https://hub.example.org
    login           https://hub.example.org/hub/lti13/oauth_login
    redirect        https://hub.example.org/hub/lti13/oauth_callback
    custom field    login=$Canvas.user.loginId       in Canvas (Developer Keys, + LTI Key)
                    login=$User.username             in Moodle (External tool; LTI 1.3; share the launcher's name)

A user who can edit the tool's custom fields can make the platform send any name: allow this to administrators only.

Then write what the platform shows into login.json in the class's state folder (mode 600):

    {"platform": "canvas", "client_id": ["10000000000001"]}
    {"platform": "moodle", "site": "https://moodle.example.org", "client_id": ["aBcDeFgHiJ"]}

For a Canvas that Instructure does not run, and for any other platform, write all addresses: "issuer",
"authorize_url" and "jwks_endpoint" in place of "platform". "username_key" names another claim than the custom field
above.
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
    """Accepts users whom the platform sends, except those who have been removed here."""

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
