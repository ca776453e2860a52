"""Robot arms as arrays: kinematics of one configuration, and batched inverse kinematics."""

from jaxeval.robots.embodiments import arm_velocity_limits as arm_velocity_limits
from jaxeval.robots.embodiments import embodiment_with as embodiment_with
from jaxeval.robots.inverse import Solved as Solved
from jaxeval.robots.inverse import follow as follow
from jaxeval.robots.inverse import inverse_kinematics as inverse_kinematics
from jaxeval.robots.load import load_robot as load_robot
from jaxeval.robots.load import read_robot as read_robot
from jaxeval.robots.load import robot_names as robot_names
from jaxeval.robots.model import Robot as Robot
from jaxeval.robots.model import forward_kinematics as forward_kinematics
from jaxeval.robots.model import jacobian as jacobian
from jaxeval.robots.pool import load_pool as load_pool
