"""Login by an OAuth 2 or OpenID Connect provider, as a university has one: OAuthenticator 17.4.

    containers/launch hub --login oauth --class names.txt

Only the names of the class list may log in. The provider checks the person's identity, so the class has no passwords.
Register the address https://HUB/hub/oauth_callback with the provider. Write what it gives you into login.json in the
class's state folder, readable by you only (mode 600):

    {"client_id": "…", "client_secret": "…",
     "authorize_url": "https://login.example.org/authorize", "token_url": "https://login.example.org/token",
     "userdata_url": "https://login.example.org/userinfo",
     "callback_url": "https://hub.example.org/hub/oauth_callback",
     "username_claim": "campus_id"}

`username_claim` is the provider's claim with the name of the class list. Choose a claim that its owner cannot change
and that is never given to another person: a campus id, or `sub`. A user who can edit the claim, as is often the case
for `preferred_username`, can log in as another member of the class. Optional: "scope" (default ["openid"]) and
"login_service", the text of the button.
"""

from class_list import read_class
from jupyterhub.user import User
from login_file import read_login
from oauthenticator.generic import GenericOAuthenticator

REQUIRED = {  # in login.json → OAuthenticator's name
    **{name: name for name in ("client_id", "client_secret", "authorize_url", "token_url", "userdata_url")},
    "callback_url": "oauth_callback_url",
    "username_claim": "username_claim",
}
login = read_login(state, REQUIRED)  # noqa: F821
class_file = state / "class.json"  # noqa: F821


class ClassOAuthenticator(GenericOAuthenticator):
    """Accepts the names of the class list, and ends the sessions of users who have been removed."""

    def validate_username(self, username: str) -> bool:
        """Whether this name can log in."""
        return super().validate_username(username) and username in read_class(class_file)

    async def refresh_user(self, user: User, handler: object = None, **_: object) -> bool:
        """Whether a session goes on."""
        return user.name in read_class(class_file)


c.JupyterHub.authenticator_class = ClassOAuthenticator  # noqa: F821
c.ClassOAuthenticator.update({trait: login[name] for name, trait in REQUIRED.items()})  # noqa: F821
c.ClassOAuthenticator.scope = login.get("scope", ["openid"])  # noqa: F821
c.ClassOAuthenticator.login_service = login.get("login_service", "your university's login")  # noqa: F821
